// Package service calls functions that the service has set in the config. Such a function may hang,
// panic or return an error that panics, and none of that may hold up the node or end its process.
package service
