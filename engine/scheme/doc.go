// Package scheme stands between the tree and the authentication schemes of the service. A transaction
// asks them, and a panic there may not end the process.
package scheme
