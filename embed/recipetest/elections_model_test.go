package recipetest

import (
	"fmt"
	"strings"

	"github.com/vivarium-go/vivarium/embed/election"
)

// A move is a leadership that was given to the candidate that published a value.
type move struct {
	from *grant
	to   string
}

// stands records that a candidate has entered, and is where its priority puts it.
func (m *model) stands(path, note string, priority int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.placeLocked(path).standing[note] = priority
}

func (m *model) standsNoMore(path, note string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.placeLocked(path).standing, note)
}

// standing returns the notes of the candidates that a newcomer with a priority does not go ahead
// of.
func (m *model) standing(path string, priority int) (notes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for note, p := range m.placeLocked(path).standing {
		if p >= priority {
			notes = append(notes, note)
		}
	}
	return notes
}

// offered records that the candidate that publishes a value may be given a leadership ahead of
// others.
func (m *model) offered(path, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.placeLocked(path).offered[value] = true
}

// moved records that a leadership was given.
func (m *model) moved(from *grant, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.placeLocked(from.paths[0])
	p.moves = append(p.moves, move{from, value})
}

// movesLocked checks that nobody led between a leader and the candidate that got its place. That
// candidate's token has the same zxid.
func (m *model) movesLocked(path string, p *place) {
	for _, mv := range p.moves {
		var to *grant
		for _, g := range p.tokens {
			if g.value == mv.to && g.token.Zxid == mv.from.token.Zxid && g.token.Compare(mv.from.token) > 0 && (to == nil || g.token.Compare(to.token) < 0) {
				to = g
			}
		}
		if to == nil {
			continue // it was lost before its caller knew
		}
		for _, g := range p.tokens {
			if g.token.Compare(mv.from.token) > 0 && g.token.Compare(to.token) < 0 {
				m.found("%s: %v led between %v and %v, which was given the leadership", path, g, mv.from, to)
			}
		}
	}
}

// sighted checks what an observer saw after last. It sees leaders in the order of their tokens, and
// the values of each leader in their order. Earlier leaders know that they no longer lead.
func (m *model) sighted(path string, last, now election.Leader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sights++
	who, n := split(now.Value)
	switch c := now.Token.Compare(last.Token); {
	case c < 0:
		m.found("%s: an observer saw the token %v (%s) after %v (%s)", path, now.Token, now.Value, last.Token, last.Value)
	case c == 0:
		if before, m0 := split(last.Value); before != who || m0 >= n {
			m.found("%s: an observer saw of the token %v %q after %q", path, now.Token, now.Value, last.Value)
		}
	}
	p := m.placeLocked(path)
	if g := p.tokens[now.Token]; g != nil && g.value != who {
		m.found("%s: an observer saw %q, and that is %v", path, now.Value, g)
	}
	for _, g := range p.live {
		if g.token.Compare(now.Token) < 0 && m.heldLocked(g) && !p.took(g) {
			m.found("%s: an observer saw the token %v (%s), and %v still leads", path, now.Token, now.Value, g)
		}
	}
}

// split returns the parts of a published value: the publisher, and the number of the value.
func split(value []byte) (who string, n int) {
	who, text, _ := strings.Cut(string(value), " #")
	_, _ = fmt.Sscan(text, &n)
	return who, n
}
