// Package sampling turns what the rooms of a node count into samples of package metrics.
package sampling
