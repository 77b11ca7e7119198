// Package native is what embed/client and embed/gateway agree on beyond the records of package
// wire: the numbers of errors, and how operations and results of a tree are written.
package native
