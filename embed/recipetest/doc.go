// Package recipetest tests the recipes of embed/lock and embed/election under random faults.
// Callers use the recipes on sessions of all members. Meanwhile members are cut off, stopped,
// killed and started again. A model checks everything that the callers are granted and told. The
// package has tests only.
//
//	go test ./embed/recipetest -run TestElections -seed 7
//	go test ./embed/recipetest -run TestLocks -timeout 0 -long 1h
//
// The first command repeats the random choices of a run. Their outcome still varies with the
// machine's timing. The second plays schedules with every kind of fault for an hour.
//
// schedule_test.go and faults_test.go play the schedules, and holder_test.go runs the callers.
// model_test.go has the model.
//
// promises_test.go lists what each recipe promises of what others have done. lag_test.go keeps every
// promise on a member that lags. own_ctx_test.go calls what ends the ctx that it is given.
//
// ended_test.go cancels the calls of all other recipes too, and ends their sessions, at every step.
// refused_test.go refuses each single write of every recipe, or hides its outcome.
package recipetest
