package discovery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/discovery"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/membersflag"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
	membersflag.Define()
}

const base = "/services"

var (
	must    = testkit.Must
	wantErr = testkit.WantErr
)

// minutes is how long a test waits for what must happen, in virtual time.
const minutes = 5 * time.Minute

// bubble tests in virtual time, with an ensemble of so many members and a slow tick.
func bubble(t *testing.T, n int, test func(t *testing.T, ens *embedtest.Ensemble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, embedtest.New(t, n, embedtest.Options{Config: func(c *embed.Config) {
			c.Tick, c.ContainerCheckInterval = 100*time.Millisecond, time.Second
		}}))
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

var started = time.UnixMilli(1767225600123)

func uri(t *testing.T, spec string) discovery.URISpec {
	t.Helper()
	u, err := discovery.ParseURI(spec)
	must(t, err)
	return u
}

// The bytes are those that Jackson writes for Curator's ServiceInstance, in the order of its
// fields, and they read back as what was written. In spring-cloud-zookeeper#107 an object without
// its class could not be read.
func TestEncode_GoldenBytes(t *testing.T) {
	full := discovery.Instance{Name: "billing", ID: "1", Address: "10.0.0.1", Port: 80, SSLPort: 443, Registered: started, Type: discovery.Dynamic}
	with := func(change func(*discovery.Instance)) discovery.Instance {
		in := full
		change(&in)
		return in
	}
	const head = `{"name":"billing","id":"1","address":"10.0.0.1","port":80,"sslPort":443,"payload":`
	const tail = `,"registrationTimeUTC":1767225600123,"serviceType":"DYNAMIC","uriSpec":null}`
	for _, c := range []struct {
		in   discovery.Instance
		want string
	}{
		{full, head + "null" + tail},
		{with(func(in *discovery.Instance) { in.Payload = []byte(`"a <text> & more"`) }), head + `"a <text> & more"` + tail},
		{with(func(in *discovery.Instance) { in.Payload = []byte(`17`) }), head + "17" + tail},
		{with(func(in *discovery.Instance) { in.Payload = []byte(`["java.util.ArrayList",[1,2]]`) }), head + `["java.util.ArrayList",[1,2]]` + tail},
		{with(func(in *discovery.Instance) { in.Payload = []byte(`{"b":1,"a":{"x":null}}`) }), head + `{"b":1,"a":{"x":null}}` + tail},
		{with(func(in *discovery.Instance) { in.Payload, in.Class = []byte(`{"b":1,"a":2}`), "com.example.Load" }), head + `{"@class":"com.example.Load","b":1,"a":2}` + tail},
		{with(func(in *discovery.Instance) { in.Payload, in.Class = []byte(`{}`), "java.util.HashMap" }), head + `{"@class":"java.util.HashMap"}` + tail},
		{with(func(in *discovery.Instance) { in.Disabled = true }), head + "null" + strings.Replace(tail, "}", `,"enabled":false}`, 1)},
		{with(func(in *discovery.Instance) { in.URI = uri(t, "{scheme}://{address}") }), head + "null" +
			strings.Replace(tail, "null", `{"parts":[{"value":"scheme","variable":true},{"value":"://","variable":false},{"value":"address","variable":true}]}`, 1)},
		{discovery.Instance{Name: "n", ID: "i", Type: discovery.Permanent}, `{"name":"n","id":"i","address":null,"port":null,"sslPort":null,"payload":null,"registrationTimeUTC":0,"serviceType":"PERMANENT","uriSpec":null}`},
	} {
		data, err := discovery.Encode(c.in)
		if err != nil || string(data) != c.want {
			t.Errorf("got  %s, %v\nwant %s", data, err, c.want)
		}
		back, err := discovery.Decode(data)
		if err != nil || fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", c.in) {
			t.Errorf("%s reads as %+v, %v, not %+v", data, back, err, c.in)
		}
	}
	in := with(func(in *discovery.Instance) { in.Type, in.Payload = "", []byte(" { \"a\" : [ 1 ] } ") })
	if data, err := discovery.Encode(in); err != nil || string(data) != head+`{"a":[1]}`+tail {
		t.Errorf("%s, %v", data, err)
	}
	for _, bad := range []discovery.Instance{{Payload: []byte("{")}, {Payload: []byte("")}, {Payload: []byte("1"), Class: "x"}, {Class: "x"}} {
		_, err := discovery.Encode(bad)
		wantErr(t, err, embed.ErrInvalidArgument)
	}
}

// An array without its class makes Curator's clients fail to read all instances of the service:
// clienttest shows that.
func TestEncode_Array(t *testing.T) {
	for _, bad := range []string{`[]`, `[1,2]`, `["a"]`, `["a",1,2]`, `["",1]`, ` [ ["a"] ]`} {
		_, err := discovery.Encode(discovery.Instance{Name: "n", ID: "i", Payload: []byte(bad)})
		wantErr(t, err, embed.ErrInvalidArgument)
	}
	data, err := discovery.Encode(discovery.Instance{Name: "n", ID: "i", Payload: []byte(`[ "java.util.ArrayList", [] ]`)})
	if err != nil || !strings.Contains(string(data), `"payload":["java.util.ArrayList",[]],`) {
		t.Errorf("%s, %v", data, err)
	}
}

// Curator itself has written the files, see clienttest. They read as what was registered, and
// Encode writes the same bytes, except where the last field says what it leaves out.
func TestEncode_CuratorsBytes(t *testing.T) {
	of := func(in discovery.Instance) discovery.Instance {
		in.Name, in.Address, in.Registered = "golden", "10.0.0.1", started
		return in
	}
	const enabled, zeros = "enabled", "zeros"
	cases := map[string]struct {
		in    discovery.Instance
		loses string
	}{
		"least":     {in: discovery.Instance{Name: "golden"}},
		"full":      {in: of(discovery.Instance{Port: 8080, SSLPort: 8443, URI: uri(t, "{scheme}://{address}:{port}/{[}api{]}?a=1&b=<2>")})},
		"zero":      {discovery.Instance{Name: "golden", Registered: started, URI: discovery.URISpec{Parts: []discovery.URIPart{}}}, zeros},
		"text":      {in: of(discovery.Instance{Payload: []byte(`"a \"text\" <b> & \\ / \n\t\b\u0001 é"`)})},
		"whole":     {in: of(discovery.Instance{Payload: []byte("17")})},
		"fraction":  {in: of(discovery.Instance{Payload: []byte("2.5")})},
		"true":      {in: of(discovery.Instance{Payload: []byte("true")})},
		"long":      {in: of(discovery.Instance{Payload: []byte(`["java.lang.Long",17]`)})},
		"map":       {in: of(discovery.Instance{Payload: []byte(`{"zone":"eu","weight":7}`), Class: "java.util.LinkedHashMap"})},
		"empty":     {in: of(discovery.Instance{Payload: []byte(`{}`), Class: "java.util.LinkedHashMap"})},
		"list":      {in: of(discovery.Instance{Payload: []byte(`["java.util.ArrayList",["a",1]]`)})},
		"class":     {in: of(discovery.Instance{Payload: []byte(`{"zone":"eu","weight":7,"tags":[]}`), Class: "Mixed$Payload"})},
		"disabled":  {in: of(discovery.Instance{Disabled: true})},
		"enabled":   {of(discovery.Instance{}), enabled},
		"static":    {in: of(discovery.Instance{Type: discovery.Static})},
		"permanent": {in: of(discovery.Instance{Type: discovery.Permanent})},
	}
	files, err := os.ReadDir("testdata/curator")
	must(t, err)
	if len(files) != len(cases) {
		t.Errorf("%d files for %d cases", len(files), len(cases))
	}
	for name, c := range cases {
		recorded, err := os.ReadFile("testdata/curator/" + name + ".json")
		must(t, err)
		c.in.ID = name
		if c.in.Type == "" {
			c.in.Type = discovery.Dynamic
		}
		if got, err := discovery.Decode(recorded); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.in) {
			t.Errorf("%s reads as %+v, %v, not %+v", recorded, got, err, c.in)
		}
		want := string(recorded)
		switch c.loses {
		case enabled:
			want = strings.Replace(want, `,"enabled":true`, "", 1)
		case zeros:
			want = strings.NewReplacer(`""`, "null", ":0,", ":null,", `{"parts":[]}`, "null").Replace(want)
		}
		if got, err := discovery.Encode(c.in); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

// What others write is read: in any order, with unknown members, of Spring, which writes a class
// (spring-cloud-zookeeper#107), with and without "enabled" (CURATOR-275). What is no instance is an
// error: in CURATOR-574 empty data broke the whole list.
func TestDecode_WhatOthersWrite(t *testing.T) {
	const spring = `{"name":"app","id":"7","address":"host","port":8080,"sslPort":null,"payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"app:1","name":"app","metadata":{"instance_status":"UP"}},"registrationTimeUTC":1,"serviceType":"DYNAMIC","uriSpec":{"parts":[{"value":"scheme","variable":true},{"value":"://x","variable":false}]}}`
	in, err := discovery.Decode([]byte(spring))
	must(t, err)
	if in.Class != "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance" || string(in.Payload) != `{"id":"app:1","name":"app","metadata":{"instance_status":"UP"}}` || in.Port != 8080 || in.Disabled || len(in.URI.Parts) != 2 {
		t.Errorf("%+v", in)
	}
	if again, err := discovery.Encode(in); err != nil || string(again) != spring {
		t.Errorf("%s, %v", again, err)
	}
	for text, want := range map[string]discovery.Instance{
		`{"id":"i","future":{"a":[1]},"name":"n"}`:                         {Name: "n", ID: "i", Type: discovery.Dynamic},
		`{"name":"n","id":"i","enabled":true}`:                             {Name: "n", ID: "i", Type: discovery.Dynamic},
		`{"name":"n","id":"i","enabled":false,"serviceType":"STATIC"}`:     {Name: "n", ID: "i", Type: discovery.Static, Disabled: true},
		`{"payload":{"a":1,"@class":"x","b":2},"name":"n","id":"i"}`:       {Name: "n", ID: "i", Type: discovery.Dynamic, Class: "x", Payload: []byte(`{"a":1,"b":2}`)},
		`{"payload": {"@class": 17, "b": {} }, "name": "n", "id": "i"}`:    {Name: "n", ID: "i", Type: discovery.Dynamic, Payload: []byte(`{"@class":17,"b":{}}`)},
		"\n{ \"name\":\"n\",\"id\":\"i\",\"payload\": [ ],\"uriSpec\":{}}": {Name: "n", ID: "i", Type: discovery.Dynamic, Payload: []byte(`[ ]`)},
	} {
		if got, err := discovery.Decode([]byte(text)); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "10.0.0.1", "null", "{}", `{"name":"n"}`, `{"name":"n","id":"i","port":"x"}`, `{"name":"n","id":"i"`} {
		if in, err := discovery.Decode([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, in)
		}
	}
}

// Nothing that Decode accepts fails to encode, except an array without its class, or changes when
// it is written and read again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"n","id":"i","payload":{"@class":"x","a":[1,{"b":null}]},"port":1}`))
	f.Add([]byte(`{"name":"n","id":"i","payload":"text","uriSpec":{"parts":[{"value":"x","variable":true}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := discovery.Decode(data)
		if err != nil {
			return
		}
		wrote, err := discovery.Encode(in)
		if errors.Is(err, embed.ErrInvalidArgument) && in.Payload[0] == '[' {
			return
		}
		if err != nil || !json.Valid(wrote) {
			t.Fatalf("%+v: %s, %v", in, wrote, err)
		}
		back, err := discovery.Decode(wrote)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := discovery.Encode(back); err != nil || string(again) != string(wrote) {
			t.Fatalf("%s, then %s, %v", wrote, again, err)
		}
	})
}

func TestURISpec(t *testing.T) {
	in := discovery.Instance{Name: "n", ID: "i", Address: "h", Port: 80, Registered: started}
	secure := in
	secure.SSLPort = 443
	for _, c := range []struct {
		spec string
		in   discovery.Instance
		want string
	}{
		{"{scheme}://{address}:{port}/{name}/{id}", in, "http://h:80/n/i"},
		{"{scheme}://{ address }:{ssl-port}", secure, "https://h:443"},
		{"{ssl-port}|{registration-time-utc}|{service-type}|{unknown}|{[}x{]}", in, "|1767225600123|dynamic||{x}"},
		{"{scheme}:{zone}", in, "http:east"},
		{"{port}{registration-time-utc}", discovery.Instance{}, "0"},
		{"", in, ""},
		{"{}x", in, "x"},
	} {
		if got := uri(t, c.spec).Build(c.in, map[string]string{"zone": "east", "x": "no"}); got != c.want {
			t.Errorf("%s: %q, want %q", c.spec, got, c.want)
		}
	}
	if got := uri(t, "{scheme}").Build(in, map[string]string{"scheme": "ftp"}); got != "ftp" {
		t.Error(got)
	}
	for _, bad := range []string{"{", "}", "a}b", "{a{b}}", "{a"} {
		_, err := discovery.ParseURI(bad)
		wantErr(t, err, embed.ErrInvalidArgument)
	}
}

// until waits for the instances, written as their ids with their ports.
func until(t *testing.T, v *discovery.Service, want string) {
	t.Helper()
	var seen []string
	for list, err := range v.Changes(within(t, minutes)) {
		var all []string
		for _, in := range list {
			all = append(all, fmt.Sprint(in.ID, ":", in.Port))
		}
		if strings.Join(all, " ") == want {
			return
		}
		seen = append(seen, fmt.Sprint(all, err))
	}
	t.Fatalf("waited in vain for %s, and saw %v", want, seen)
}

func present(t *testing.T, r *discovery.Registration) {
	t.Helper()
	for s, err := range r.Changes(within(t, minutes)) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Present {
			return
		}
	}
}

// An instance is registered through the loss of its session, with its newest fields, and only once.
// In CURATOR-146 and CURATOR-181 an old instance was registered again after a reconnect. In
// CURATOR-164 a reconnect raced with the end of a registration. In CURATOR-320 an instance was
// registered again for ever.
func TestRegister_ThroughLossesAndUpdates(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		v, err := discovery.Watch(t.Context(), ens.Session(1, embed.SessionOptions{}), base, "billing")
		must(t, err)
		defer v.Close()
		until(t, v, "")
		in := discovery.Instance{Name: "billing", ID: "a", Port: 1, Registered: started, Payload: []byte(`{"x":1}`)}
		a := discovery.Register(ens.Opener(3), base, in)
		defer a.Close()
		copy(in.Payload, `{"x":2}`) // which is the caller's
		until(t, v, "a:1")
		if got := v.Instances()[0]; string(got.Payload) != `{"x":1}` || !got.Registered.Equal(started) || string(a.Instance().Payload) != `{"x":1}` {
			t.Errorf("%+v", got)
		}
		var wg sync.WaitGroup
		for range 10 { // none of them is lost
			wg.Go(func() {
				if err := a.Update(within(t, minutes), func(in *discovery.Instance) { in.Port, in.ID = in.Port+1, "b" }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		until(t, v, "a:11")
		ens.Isolate(3)
		until(t, v, "")
		wantErr(t, a.Update(within(t, time.Second), func(in *discovery.Instance) { in.Port = 12 }), context.DeadlineExceeded)
		ens.HealAll()
		until(t, v, "a:12")
		if a.Instance().Port != 12 {
			t.Errorf("%+v", a.Instance())
		}
		wantErr(t, a.Update(within(t, minutes), func(in *discovery.Instance) { in.Payload = []byte("{") }), embed.ErrInvalidArgument)
		large := []byte(`"` + strings.Repeat("x", 8<<20) + `"`)
		wantErr(t, a.Update(within(t, minutes), func(in *discovery.Instance) { in.Payload = large }), embed.ErrTooLarge)
		if got := a.Instance(); string(got.Payload) != `{"x":1}` {
			t.Errorf("%s", got.Payload)
		}
		second := discovery.Register(ens.Opener(1), base, discovery.Instance{Name: "billing", ID: "a", Port: 99})
		select {
		case <-second.Done():
		case <-time.After(minutes):
			t.Fatal("there are two")
		}
		wantErr(t, second.Err(), group.ErrTaken)
		until(t, v, "a:12")
		must(t, a.Close())
		must(t, a.Close())
		until(t, v, "")
		wantErr(t, a.Err(), embed.ErrReleased)
		wantErr(t, a.Update(t.Context(), func(*discovery.Instance) {}), embed.ErrReleased)
	})
}

// An Update whose ctx ends is registered later, even if the next one is refused before that.
func TestUpdate_RefusedAfterOneThatWaits(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		v, err := discovery.Watch(t.Context(), ens.Session(1, embed.SessionOptions{}), base, "billing")
		must(t, err)
		defer v.Close()
		a := discovery.Register(ens.Opener(3), base, discovery.Instance{Name: "billing", ID: "a", Port: 1})
		defer a.Close()
		until(t, v, "a:1")
		ens.Isolate(3)
		until(t, v, "")
		wantErr(t, a.Update(within(t, time.Second), func(in *discovery.Instance) { in.Port = 2 }), context.DeadlineExceeded)
		refused := make(chan error, 1)
		go func() {
			large := []byte(`"` + strings.Repeat("x", 8<<20) + `"`)
			refused <- a.Update(within(t, minutes), func(in *discovery.Instance) { in.Payload = large })
		}()
		synctest.Wait()
		ens.HealAll()
		wantErr(t, <-refused, embed.ErrTooLarge)
		if got := a.Instance(); got.Port != 2 || got.Payload != nil {
			t.Errorf("port %d, %.9s", got.Port, got.Payload)
		}
		until(t, v, "a:2")
	})
}

// Instances of every kind are listed, those that cannot be read are reported and hide no other, and
// Pick passes over the disabled ones and those with errors. PERMANENT instances stay when others
// close (CURATOR-94).
func TestService_PicksAndReports(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		ctx, s := t.Context(), ens.Session(1, embed.SessionOptions{})
		put := func(name, data string) {
			t.Helper()
			_, err := s.Put(ctx, base+"/billing/"+name, []byte(data))
			must(t, err)
		}
		names, err := discovery.Names(ctx, s, base)
		if err != nil || names != nil {
			t.Error(names, err)
		}
		v, err := discovery.Watch(ctx, s, base, "billing")
		must(t, err)
		if in, ok := v.Pick(discovery.Random); ok {
			t.Errorf("%+v", in)
		}
		for _, kind := range []discovery.Type{discovery.Static, discovery.Permanent, discovery.DynamicSequential} {
			in := discovery.Instance{Name: "billing", ID: strings.ToLower(string(kind[0])), Port: len(kind), Type: kind}
			data, err := discovery.Encode(in)
			must(t, err)
			if got := in.Path(base); got != base+"/billing/"+in.ID {
				t.Error(got)
			}
			put(in.ID, string(data))
		}
		put("broken", "")
		until(t, v, "d:18 p:9 s:6")
		put("s", "{")
		put("off", `{"name":"billing","id":"off","enabled":false,"port":7}`)
		until(t, v, "d:18 off:7 p:9 s:6") // s as it was before
		bad := v.Unreadable()
		if len(bad) != 2 || bad[base+"/billing/s"] == nil || bad[base+"/billing/broken"] == nil {
			t.Errorf("%v", bad)
		}
		if names, err := discovery.Names(ctx, s, base); err != nil || fmt.Sprint(names) != "[billing]" {
			t.Error(names, err)
		}
		picks := func(p discovery.Picker, n int) (all string) {
			for range n {
				in, ok := v.Pick(p)
				if !ok {
					in.ID = "-"
				}
				all += in.ID
			}
			return all
		}
		if got := picks(discovery.RoundRobin(), 7); got != "dpsdpsd" {
			t.Error(got)
		}
		sticky := discovery.Sticky(discovery.RoundRobin())
		if got := picks(sticky, 3); got != "ddd" {
			t.Error(got)
		}
		v.Note("nobody")
		v.Note("d")
		<-time.After(29 * time.Second)
		if got := picks(sticky, 2); got != "dd" {
			t.Error(got)
		}
		v.Note("d") // the second within 30 s
		put("d", `{"name":"billing","id":"d","port":19}`)
		until(t, v, "d:19 off:7 p:9 s:6")
		if got := picks(sticky, 2) + picks(discovery.RoundRobin(), 3); got != "ss"+"psp" {
			t.Error(got)
		}
		<-time.After(2 * time.Second)
		if got := picks(discovery.RoundRobin(), 3); got != "dps" {
			t.Error(got)
		}
		v.Note("d") // the first of another 30 s
		if got := picks(discovery.RoundRobin(), 3) + picks(sticky, 1); got != "dpss" {
			t.Error(got)
		}
		for _, id := range []string{"d", "p", "s", "d", "p", "s"} {
			v.Note(id)
		}
		if got := picks(discovery.Random, 2); got != "--" {
			t.Error(got)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					v.Note("s")
					v.Pick(sticky)
				}
			})
		}
		wg.Wait()
		<-time.After(31 * time.Second)
		if in, ok := v.Pick(discovery.Random); !ok || in.Disabled {
			t.Errorf("%+v", in)
		}
		must(t, v.Close())
		wantErr(t, v.Err(), view.ErrClosed)
		for _, err := range v.Changes(ctx) {
			if err != nil {
				wantErr(t, err, view.ErrClosed)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		n, s := ens.Node(1), ens.Session(1, embed.SessionOptions{})
		for _, in := range []discovery.Instance{
			{}, {Name: "n"}, {ID: "i"}, {Name: "a/b", ID: "i"}, {Name: "n", ID: "a/b"}, {Name: "n", ID: "i", Payload: []byte("x")},
			{Name: "n", ID: "i", Type: discovery.Static}, {Name: "n", ID: "i", Type: "x"},
		} {
			r := discovery.Register(n, base, in)
			<-r.Done()
			wantErr(t, r.Err(), embed.ErrInvalidArgument)
			wantErr(t, r.Update(t.Context(), func(*discovery.Instance) {}), embed.ErrInvalidArgument)
			for _, err := range r.Changes(t.Context()) {
				wantErr(t, err, embed.ErrInvalidArgument)
			}
			must(t, r.Close())
		}
		for path, want := range map[string]error{"": embed.ErrInvalidPath, "x": embed.ErrInvalidPath} {
			r := discovery.Register(n, path, discovery.Instance{Name: "n", ID: "i"})
			select {
			case <-r.Done():
			case <-time.After(minutes):
				t.Fatal("it lasts")
			}
			wantErr(t, r.Err(), want)
			_, err := discovery.Watch(t.Context(), s, path, "n")
			wantErr(t, err, want)
		}
		for _, name := range []string{"", "a/b"} {
			_, err := discovery.Watch(t.Context(), s, base, name)
			wantErr(t, err, embed.ErrInvalidArgument)
		}
		var zero discovery.Registration
		<-zero.Done()
		wantErr(t, zero.Err(), embed.ErrReleased)
		wantErr(t, zero.Update(t.Context(), func(*discovery.Instance) {}), embed.ErrReleased)
		for _, err := range zero.Changes(t.Context()) {
			wantErr(t, err, embed.ErrReleased)
		}
		if zero.Instance().Name != "" {
			t.Error("it has a name")
		}
		must(t, zero.Close())
		r := discovery.Register(n, "/", discovery.Instance{Name: "n", ID: "i"})
		present(t, r)
		if _, ok, err := s.Exists(t.Context(), "/n/i"); !ok || err != nil {
			t.Error(ok, err)
		}
		must(t, r.Close())
		if !errors.Is(r.Err(), embed.ErrReleased) {
			t.Error(r.Err())
		}
	})
}
