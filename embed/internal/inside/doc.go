// Package inside names the parts of a node that tests of this module replace. Being internal, it keeps them out of the
// public face.
package inside
