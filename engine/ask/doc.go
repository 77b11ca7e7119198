// Package ask is how nodes ask each other that may not know one another: a node that wants to join, a
// member that wants to leave, a process that is no member. It has the questions, the answers and who
// asks; package engine answers.
package ask
