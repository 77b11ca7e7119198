// Judge runs `go test` for the scripts in .ci. It prints what go test prints for packages that pass,
// and the whole output of those that fail.
//
//	go run ./.ci/judge -real PACKAGES -flaky FILE -- GO-TEST-ARGUMENTS
//
// Tests that start real processes depend on a machine that runs them now and then. So a failed test
// of the packages that the regular expression -real matches is run once more, alone and with all its
// subtests. If it passes, it is flaky: judge appends its name and both outputs to FILE, and does not
// count it as a failure. To skip is not to pass. All other tests get no second try, and nothing does
// after a panic, a data race, or a failure outside tests.
package main
