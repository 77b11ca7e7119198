// Package recovery is the first start of a survivor after a forced recovery: it begins the new lineage.
package recovery
