// Package value has what one znode holds: a typed value that all read and change.
package value
