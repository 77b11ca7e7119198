// Package roster is what a node knows of who is in its ensemble: itself, the founders, the table of
// members, who votes, and where members may be. It decides nothing.
package roster
