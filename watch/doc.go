// Package watch decides which watches a change concerns and queues events for them.
package watch
