// Package refusals is for tests: it refuses the writes of sessions, one at a time or from one on,
// and hides the outcome of others. So a test plays an error at each single write of a recipe.
package refusals
