//go:build unix

package main

import (
	"fmt"
	"time"
)

// A line is one measurement. It has one or several figures.
type line struct {
	suite   string
	name    string
	figures []figure
	// words ask a client for the measurement, in a place of its own: the first component of its
	// paths. The client answers with the figures. It is nil in the suite partition.
	words func(s settings, place string) string
}

// A figure is a number of a line.
type figure struct {
	name string
	rate bool // more is better; otherwise it is a time in milliseconds
}

// suites are the names of all suites, in the order of the report.
var suites = []string{"view", "counter", "task", "partition"}

// lines are all measurements.
var lines = []line{
	{suite: "view", name: "members", figures: []figure{{name: "all arrive"}, {name: "open"}},
		words: func(s settings, place string) string { return fmt.Sprintf("view /%s %d", place, s.members) }},
	counterLine(1), counterLine(64), counterLine(1024),
	flowLine("claim", 1), flowLine("claim", 64), flowLine("take", 1), flowLine("take", 64),
	{suite: "task", name: "drain by 12", figures: []figure{{name: "tasks/s", rate: true}},
		words: func(s settings, place string) string {
			return fmt.Sprintf("drain /%s %d 12 %d", place, s.tasks, ms(s.window))
		}},
	{suite: "partition", name: "a member joins", figures: handOver},
	{suite: "partition", name: "a member dies", figures: handOver},
}

// handOver are the figures of both lines of the suite partition.
var handOver = []figure{{name: "until all is settled"}, {name: "a part has no owner"}}

func counterLine(callers int) line {
	return line{suite: "counter", name: many(callers), figures: []figure{{name: "adds/s", rate: true}},
		words: func(s settings, place string) string {
			return fmt.Sprintf("counter /%s %d %d", place, callers, ms(s.window))
		}}
}

func flowLine(kind string, callers int) line {
	return line{suite: "task", name: kind + ", " + many(callers), figures: []figure{{name: "tasks/s", rate: true}},
		words: func(s settings, place string) string {
			return fmt.Sprintf("flow %s /%s %d %d", kind, place, callers, ms(s.window))
		}}
}

func many(callers int) string {
	if callers == 1 {
		return "1 caller"
	}
	return fmt.Sprint(callers, " callers")
}

func ms(d time.Duration) int64 { return d.Milliseconds() }
