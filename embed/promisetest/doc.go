// Package promisetest tests what the README promises, each promise by a test named after it, on
// ensembles of embedtest. It has tests only.
//
//	go test ./embed/promisetest -run TestGuarantee_ -members churn -shards 4
//	go test ./embed/promisetest -run TestGuarantee_ -sessions client
//
// The first command lets members come and go meanwhile. In the second, sessions are those of
// processes that are not members.
//
// By day most tests run in virtual time, by night (VIVARIUM_NIGHT=1) all run in real time. Those that
// need real time by day too say why.
//
// embed/processtest tests the promises with processes and signals.
package promisetest
