// Package identity says whose a directory is: it compares the identity file, images and logs with the
// config, before a start changes anything.
package identity
