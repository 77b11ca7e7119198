// Package timers reuses stopped timers. For a call that nearly always ends long before its limit,
// such a timer costs no allocation; a context with a timeout costs four.
package timers
