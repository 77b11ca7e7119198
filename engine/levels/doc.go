// Package levels raises the feature level of the ensemble, when all members agree to the next one or
// somebody leaves members behind.
package levels
