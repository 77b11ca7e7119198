// Package pace limits how often a log tells of an event that repeats.
package pace
