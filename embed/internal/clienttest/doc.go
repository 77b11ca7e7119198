// Package clienttest lets tests of this module use sessions of package embed/client.
package clienttest
