// Package lines stands between the log of a node and the logger of its service.
//
//	queue := lines.New(service.Handler())
//	log := queue.Logger()
//
// The logger of a service may be slow, hang, panic, end its goroutine, or call the node. A node
// logs while it applies entries, opens connections and closes, partly with locks held. So its lines
// wait in a Queue, and only the Queue's own goroutine calls the service.
package lines
