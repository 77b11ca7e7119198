// Package offline works on the directory of a member that does not run: it checks it, looks what it
// has, makes a backup of it, and makes its member the only one of its ensemble.
package offline
