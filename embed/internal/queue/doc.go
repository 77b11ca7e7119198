// Package queue is the fair queue under locks and elections: contenders are ephemeral sequential znodes under one parent,
// served in order of their numbers, each waiting for its predecessor only.
//
// The names follow Curator's form, _c_<uuid>-<kind>-0000000007, so that its clients can stand in the same queue.
package queue
