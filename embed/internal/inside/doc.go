// Package inside holds what Node, Session and Op of package embed are made of.
//
// embed defines its types from the types here, as in
//
//	type Node inside.Node
//
// so a pointer to one converts to a pointer to the other. embed/claim and embed/gateway convert,
// and reach the engine by Parts. embed/embedtest replaces parts of the machine by Seams. A service
// cannot import this package, so it sees and reaches nothing of it.
package inside
