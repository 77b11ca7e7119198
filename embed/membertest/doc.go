// Package membertest tests members that come, go, lose their directories and change their
// addresses, and what their ensemble knows of them. It has tests only.
package membertest
