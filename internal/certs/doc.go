// Package certs keeps the certificates of members and gateways, and reads their files again when
// they change.
package certs
