// Package recipetest plays random schedules against the recipes of embed/lock and embed/election: callers use them on sessions of all members
// while these are cut off, stopped, killed and started again, and whatever they are granted and told is held against a model. It has no code
// of its own, only tests.
//
// Read main_test.go first, then schedule_test.go and faults_test.go, model_test.go, holder_test.go, and what is played: locks_test.go and
// locks_kinds_test.go, elections_test.go and what begins so.
//
//	go test ./embed/recipetest -run TestElections -seed 7
//	go test ./embed/recipetest -run TestLocks -timeout 0 -long 1h
//
// The first repeats the random choices of a run; what comes of them is as random as the machine makes it. The second plays schedules with
// every fault there is for an hour.
package recipetest
