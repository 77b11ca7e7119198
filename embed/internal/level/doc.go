// Package level waits for a new ensemble to rise to the level of an operation.
package level
