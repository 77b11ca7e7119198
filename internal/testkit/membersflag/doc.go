// Package membersflag defines the flag -members of this module's tests. With -members churn members
// come and go in the ensembles of embedtest while the tests run. Apart from tests, only embedtest
// imports it.
package membersflag
