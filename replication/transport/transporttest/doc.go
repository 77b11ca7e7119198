// Package transporttest is a network for tests of ensembles: a [Mesh] connects members in memory,
// and [Faults] break links.
//
// It is part of replication and carries no compatibility promise of its own. No program uses it
// outside of tests.
//
//	mesh, faults := transporttest.NewMesh(), transporttest.NewFaults()
//	options.Network = faults.Network(mesh.Network(1)) // of member 1
//	faults.Set(2, transporttest.Fault{Cut: true})     // from member 1 to member 2
//
// The package does not import transport, because the tests inside that package import this one. So
// it declares the interface [Network] again, and it knows where the messages of a connection end;
// see layout.go.
//
// # Goroutines
//
// A connection whose messages are delayed or held has one goroutine that carries them. It ends with
// the connection, at once, but nobody waits for that.
package transporttest
