// Package timers keeps timers that were stopped for those who need one next. A call that nearly always ends long before its limit
// then costs no allocation for it, where a context with a timeout costs four.
package timers
