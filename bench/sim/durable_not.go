//go:build !durable

package main

const durable = false
