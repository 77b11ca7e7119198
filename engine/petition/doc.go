// Package petition asks for changes of the ensemble: that a member leaves, is removed, or votes. The
// leader of the home shard judges each (package governor). Whoever asks waits until the change is made,
// or says what is known of it.
package petition
