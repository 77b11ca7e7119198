// Package presence is what a member says of itself in the table of members, and how it finds the others
// again when all of them may have moved.
package presence
