// Package health watches over a running node: what happened lately, what was slow, and which shards
// have lost their quorum. It decides what is worth a word, and how often; the node says it.
package health
