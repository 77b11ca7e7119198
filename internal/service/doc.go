// Package service calls functions that the service has set in the config. Such a function may hang,
// panic or return an error that panics. None of that may hold up its caller or end its process.
package service
