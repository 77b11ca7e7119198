//go:build durable

package main

// durable says that this build's runtime is the one that package simbuild makes.
const durable = true
