// Package discovery has services and their instances, in the znodes and the JSON of Curator's
// service discovery, so that Java clients of the gateway and Go processes find one another. That an
// instance is listed says that its process lived a session's timeout ago, not that it works. A dead
// instance stays listed until its session ends.
//
//	here := discovery.Register(node, "/services", discovery.Instance{
//		Name: "billing", ID: "billing-1", Address: "10.0.0.1", Port: 8080, Registered: time.Now(),
//	})
//	defer here.Close()
//
//	billing, err := discovery.Watch(ctx, session, "/services", "billing")
//	...
//	next := discovery.RoundRobin()
//	instance, ok := billing.Pick(next)
//
// # What it promises
//
// A Registration is a group.Announcement. It is kept up through the loss of sessions with its
// newest fields. It is never registered twice, and never takes the id of another live session.
// After Close nothing of it is left.
//
// The instances are a view of the service's znodes, so they are local reads of one zxid. Picking
// one costs no commit. Errors of an instance are noted in this process only; see Service.Note. An
// instance that does not decode is reported by Service.Unreadable. It is neither removed nor does
// it hide others.
//
// Service.Changes and Registration.Changes are an iter.Seq2 of the present state and then of each
// that differs. A slow loop may miss some, but never the newest.
//
// # Layout
//
// <base>/<service>/<id> has the JSON of Curator's ServiceInstance, in one line:
//
//	{"name":"billing","id":"billing-1","address":"10.0.0.1","port":8080,"sslPort":null,
//	"payload":null,"registrationTimeUTC":1767225600000,"serviceType":"DYNAMIC","uriSpec":null}
//
// A payload that is an object begins with its Java class, as "@class". An array comes second in
// another one: ["java.util.ArrayList",[1,2]]. Curator's default serializer writes no "enabled". So
// if a Java client with that serializer writes an instance again, it is no longer Disabled.
// Curator's other serializer ends with it. Both are read here. This package writes "enabled" for
// Disabled instances only.
//
// Register is for Dynamic instances. It does not make Dynamic sequential, Static and Permanent
// ones, but lists those of others.
//
// Read instance.go first.
package discovery
