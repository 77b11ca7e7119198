package queue

import (
	"context"
	"errors"
	"time"

	"github.com/vivarium-go/vivarium/embed"
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

// bothKey is the key of the innermost bothContext among the values of a context.
type bothKey struct{}

// Value finds the context itself for Beyond.
func (c bothContext) Value(key any) any {
	if key == (bothKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Beyond returns a context for a call that ends a tenure itself. It has the values and the deadline
// of ctx, and ends with it, but not because that tenure has ended. If ctx is of Both for that tenure,
// what remains is the other of the two. cancel must be called.
func Beyond(ctx context.Context, tenure *claim.Tenure) (beyond context.Context, cancel func()) {
	if !carries(ctx, tenure) {
		return ctx, func() {}
	}
	inner, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stops := []func() bool{context.AfterFunc(ctx, func() {
		if why := context.Cause(ctx); tenure.Err() == nil || !errors.Is(why, embed.ErrReleased) {
			end(why)
		}
	})}
	if other := otherOfBoth(ctx, tenure); other != nil {
		stops = append(stops, context.AfterFunc(other, func() { end(context.Cause(other)) }))
	}
	beyond, done := inner, func() {}
	if at, bounded := ctx.Deadline(); bounded {
		beyond, done = context.WithDeadline(inner, at)
	}
	return beyond, func() {
		for _, stop := range stops {
			stop()
		}
		done()
		end(nil)
	}
}

// carries reports whether a tenure is among those that a context carries.
func carries(ctx context.Context, tenure *claim.Tenure) bool {
	for {
		c, ok := ctx.Value(holdingKey{}).(tenureContext)
		if !ok || c.tenure == tenure {
			return ok
		}
		ctx = c.values
	}
}

// otherOfBoth returns the ctx that Both has joined with the lifetime of a tenure, or nil.
func otherOfBoth(ctx context.Context, tenure *claim.Tenure) context.Context {
	for {
		c, ok := ctx.Value(bothKey{}).(bothContext)
		if !ok {
			return nil
		}
		if life, is := c.life.(tenureContext); is && life.tenure == tenure {
			return c.ctx
		}
		ctx = c.ctx
	}
}
