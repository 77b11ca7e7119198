// Package session knows who is alive.
package session
