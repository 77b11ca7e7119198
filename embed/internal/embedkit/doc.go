// Package embedkit is the home of code that the tests of package embed share with those of
// embed/promisetest, embed/membertest, embed/disktest and embed/operationtest. Package testkit has
// what needs nothing of this module's.
package embedkit
