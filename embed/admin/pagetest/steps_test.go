package pagetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// An element is what a screen reader is told of an element of the page. The tests find elements by
// role and name, so what has no name cannot be tested.
type element struct {
	role, name, value string
	states            map[string]string // such as expanded, selected, level and focused
	depth             int
	id                cdp.BackendNodeID
}

func (e element) String() string {
	s := fmt.Sprintf("%s %q", e.role, e.name)
	if e.value != "" {
		s += fmt.Sprintf(" = %q", e.value)
	}
	for _, state := range []string{"level", "expanded", "selected", "pressed", "focused"} {
		if v := e.states[state]; v != "" && v != "false" || state == "expanded" && v != "" {
			s += " " + state + "=" + v
		}
	}
	return s
}

// raw returns the text of a value.
func raw(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var text string
	if json.Unmarshal(v.Value, &text) == nil {
		return text
	}
	return string(v.Value)
}

// elements returns the accessibility tree, in the order in which it is read.
func (p *tab) elements() (list []element) {
	p.t.Helper()
	a, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	must(p.t, err)
	nodes := make(map[accessibility.NodeID]*accessibility.Node, len(a.Nodes))
	for _, n := range a.Nodes {
		nodes[n.NodeID] = n
	}
	var walk func(n *accessibility.Node, depth int)
	walk = func(n *accessibility.Node, depth int) {
		if !n.Ignored {
			e := element{role: raw(n.Role), name: raw(n.Name), value: raw(n.Value), states: map[string]string{}, depth: depth, id: n.BackendDOMNodeID}
			for _, s := range n.Properties {
				e.states[string(s.Name)] = raw(s.Value)
			}
			list = append(list, e)
			depth++
		}
		for _, id := range n.ChildIDs {
			if child := nodes[id]; child != nil {
				walk(child, depth)
			}
		}
	}
	if len(a.Nodes) > 0 {
		walk(a.Nodes[0], 0)
	}
	return list
}

// outline shows the accessibility tree as text. It leaves out what has neither role nor name.
func (p *tab) outline() string {
	var out strings.Builder
	for _, e := range p.elements() {
		if e.role == "InlineTextBox" || e.role == "generic" || e.role == "none" {
			continue
		}
		fmt.Fprintf(&out, "%s%s\n", strings.Repeat(" ", e.depth), e)
	}
	return out.String()
}

// all returns the elements of a role and name. An empty name matches every name.
func (p *tab) all(role, name string) (list []element) {
	p.t.Helper()
	for _, e := range p.elements() {
		if e.role == role && (name == "" || e.name == name) {
			list = append(list, e)
		}
	}
	return list
}

// find waits for an element of a role and name, and returns the first one.
func (p *tab) find(role, name string) (e element) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("the %s %q", role, name), func() bool {
		list := p.all(role, name)
		if len(list) > 0 {
			e = list[0]
		}
		return len(list) > 0
	})
	return e
}

// gone waits until no element has a role and name.
func (p *tab) gone(role, name string) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("the %s %q to go", role, name), func() bool { return len(p.all(role, name)) == 0 })
}

// text returns all text that a screen reader reads, a line for each piece of it.
func (p *tab) text() string {
	p.t.Helper()
	var lines []string
	for _, e := range p.elements() {
		if e.role == "StaticText" {
			lines = append(lines, e.name)
		}
	}
	return strings.Join(lines, "\n")
}

// see waits until the page says something. Pieces of text that follow one another are joined.
func (p *tab) see(text string) {
	p.t.Helper()
	flat := func(s string) string { return strings.Join(strings.Fields(strings.ReplaceAll(s, "\u202f", " ")), " ") }
	until(p.t, fmt.Sprintf("the page to say %q", text), func() bool {
		all := p.text()
		return strings.Contains(flat(all), flat(text)) || strings.Contains(flat(strings.ReplaceAll(all, "\n", "")), flat(text))
	})
}

// centre returns the middle of an element, once it is in view and does not move.
func (p *tab) centre(e element) (x, y float64, ok bool) {
	if _, err := chromedp.Call(p.ctx, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: e.id}); err != nil {
		return 0, 0, false // it has been replaced
	}
	a, err := chromedp.Call(p.ctx, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: e.id})
	if err != nil || len(a.Quads) == 0 {
		return 0, 0, false
	}
	q := a.Quads[0]
	return (q[0] + q[2] + q[4] + q[6]) / 4, (q[1] + q[3] + q[5] + q[7]) / 4, true
}

// click clicks on the middle of an element, as a mouse does.
func (p *tab) click(role, name string) {
	p.t.Helper()
	var x, y float64
	until(p.t, fmt.Sprintf("the %s %q to be where it can be clicked", role, name), func() (ok bool) {
		x, y, ok = p.centre(p.find(role, name))
		return ok
	})
	must(p.t, chromedp.Do(p.ctx, chromedp.MouseClickXY(x, y)))
}

// A key is named as JavaScript names it. These have a code of their own.
var keys = map[string]struct {
	code int64
	text string
}{
	"Enter": {13, "\r"}, "Tab": {9, ""}, "Escape": {27, ""}, " ": {32, " "}, "Home": {36, ""}, "End": {35, ""},
	"ArrowLeft": {37, ""}, "ArrowUp": {38, ""}, "ArrowRight": {39, ""}, "ArrowDown": {40, ""},
}

// press presses keys, one after the other. "Shift+" before a key holds that key too.
func (p *tab) press(names ...string) {
	p.t.Helper()
	for _, name := range names {
		e := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown}
		if rest, ok := strings.CutPrefix(name, "Shift+"); ok {
			name, e.Modifiers = rest, 8
		}
		e.Key, e.Code, e.Text = name, name, name
		if k, special := keys[name]; special {
			e.WindowsVirtualKeyCode, e.Text = k.code, k.text
		}
		_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, e)
		must(p.t, err)
		e.Type, e.Text = input.DispatchKeyEventTypeKeyUp, ""
		_, err = chromedp.Call(p.ctx, input.DispatchKeyEvent, e)
		must(p.t, err)
	}
}

// write inserts text where the focus is.
func (p *tab) write(text string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, input.InsertText, input.InsertTextParams{Text: text})
	must(p.t, err)
}

// fill replaces the text of a field.
func (p *tab) fill(name, text string) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("the field %q to take the focus", name), func() bool {
		_, err := chromedp.Call(p.ctx, dom.Focus, dom.FocusParams{BackendNodeID: p.find("textbox", name).id})
		return err == nil
	})
	_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Commands: []string{"selectAll"}})
	must(p.t, err)
	p.write(text)
}

// focused returns the element that has the focus.
func (p *tab) focused() element {
	p.t.Helper()
	list := p.elements()
	for _, e := range slices.Backward(list) { // the document counts as focused too
		if e.states["focused"] == "true" {
			return e
		}
	}
	return element{}
}
