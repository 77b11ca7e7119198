package queue

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/embed/claim"
)

// Context returns a context with the lifetime of a tenure and the values of another context. Its
// Err and Done compare the clock when they are called, and context.Cause says why it ended. Holding
// finds paths in it, those of the tenure's contenders.
func Context(tenure *claim.Tenure, values context.Context, paths ...string) context.Context {
	return tenureContext{Context: tenure.Context(), values: values, tenure: tenure, paths: paths}
}

type tenureContext struct {
	context.Context
	values context.Context
	tenure *claim.Tenure
	paths  []string // as the ensemble knows them
}

// holdingKey is the key of the innermost tenureContext among the values of a context.
type holdingKey struct{}

// Holding returns the paths of the contenders whose tenures a context carries, the newest first.
func Holding(ctx context.Context) (paths []string) {
	for {
		c, ok := ctx.Value(holdingKey{}).(tenureContext)
		if !ok {
			return paths
		}
		if c.tenure.Err() == nil {
			paths = append(paths, c.paths...)
		}
		ctx = c.values
	}
}

// Err asks the tenure first. That suspends a session that is past its deadline, which ends the
// context.
func (c tenureContext) Err() error {
	_ = c.tenure.Err()
	return c.Context.Err()
}

// Done asks the tenure too. It returns the inner channel itself, by which package context
// recognizes the inner context.
func (c tenureContext) Done() <-chan struct{} {
	_ = c.tenure.Err()
	return c.Context.Done()
}

// Value asks the inner context first, because package context uses it to find the cause.
func (c tenureContext) Value(key any) any {
	if key == (holdingKey{}) {
		return c
	}
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// Both returns a context with the values and the lifetime of life that also ends with ctx. cancel
// ends it and must be called. Its Err and Done look at both contexts first, so they miss neither an
// end that no timer has noticed yet nor one that has not been passed on yet.
func Both(ctx, life context.Context) (both context.Context, cancel func()) {
	inner, end := context.WithCancelCause(life)
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	return bothContext{Context: inner, ctx: ctx, life: life, end: end}, func() {
		stop()
		end(nil)
	}
}

type bothContext struct {
	context.Context
	ctx, life context.Context
	end       context.CancelCauseFunc
}

// Deadline returns the deadline of ctx; life has none.
func (c bothContext) Deadline() (time.Time, bool) { return c.ctx.Deadline() }

// Err looks at life, which ends this context too, and at ctx.
func (c bothContext) Err() error {
	_ = c.life.Err()
	if c.ctx.Err() != nil {
		c.end(context.Cause(c.ctx))
	}
	return c.Context.Err()
}

// Done looks at both as Err does.
func (c bothContext) Done() <-chan struct{} {
	_ = c.Err()
	return c.Context.Done()
}
