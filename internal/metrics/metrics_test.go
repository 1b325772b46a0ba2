package metrics

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	water = Metric{"grange_test_water_litres", Gauge, []string{"tank"}, "What is in a tank."}
	other = Metric{"grange_test_other", Counter, nil, "Something else."}
)

// values are the figures of a set as "name{label}": value.
func values(t *testing.T, s *Set) map[string]float64 {
	t.Helper()
	families, err := s.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			out[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// TestSourcesThatHang: a source that hangs takes its own figures away and no others, is asked once, and comes back.
func TestSourcesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang chan struct{}
		asked, level := 0, 7.0
		s := NewSet()
		s.Source("tank", func() (Reading, error) {
			asked++
			now := level
			if hang != nil {
				<-hang
			}
			return func(put Put) { put(water, now, "a") }, nil
		}, water)
		s.Source("other", func() (Reading, error) { return func(put Put) { put(other, 1) }, nil }, other)
		want := func(what string, up, age float64, level float64, known bool) {
			t.Helper()
			got := values(t, s)
			if got[sourceUp.Name+" tank"] != up || got[sourceUp.Name+" other"] != 1 || got[other.Name] != 1 {
				t.Errorf("%s: %v", what, got)
			}
			if v, ok := got[water.Name+" a"]; ok != known || v != level ||
				math.Abs(got[sourceAge.Name+" tank"]-age) > .01 {
				t.Errorf("%s: %v, %v old, known %v", what, v, got[sourceAge.Name+" tank"], ok)
			}
		}
		want("at first", 1, 0, 7, true)
		values(t, s)
		if asked != 1 {
			t.Errorf("two scrapers at a time: read %d times", asked)
		}
		time.Sleep(10 * time.Second)
		hang = make(chan struct{})
		for i := range 3 {
			time.Sleep(time.Second)
			want("while it hangs", 0, 11+1.7*float64(i)+.7, 7, true)
		}
		if asked != 2 {
			t.Errorf("a source that hangs was asked %d times", asked)
		}
		time.Sleep(readLast)
		want("after five minutes", 0, 0, 0, false)
		level = 9
		close(hang)
		hang = nil
		time.Sleep(readAgain)
		want("again", 1, 0, 9, true)
	})
}

func TestSourcesThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		s := NewSet()
		s.Source("tank", func() (Reading, error) { return func(put Put) { put(water, 1, "a") }, broken }, water)
		broken = errors.New("no water")
		if got := values(t, s); got[sourceUp.Name+" tank"] != 0 || len(got) == 0 || got[water.Name+" a"] != 0 {
			t.Error(got)
		}
		broken = nil
		if got := values(t, s); got[sourceUp.Name+" tank"] != 1 || got[water.Name+" a"] != 1 {
			t.Error("a source that failed is not asked at once:", got)
		}
	})
}

// TestWrongLabels: a figure that does not fit its metric is an error of the scrape, and all others are shown.
func TestWrongLabels(t *testing.T) {
	s := NewSet()
	s.Source("tank", func() (Reading, error) {
		return func(put Put) { put(water, 1); put(water, 2, "b") }, nil
	}, water)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if body := w.Body.String(); !strings.Contains(body, `grange_test_water_litres{tank="b"} 2`) {
		t.Error(body)
	}
}

func TestHidden(t *testing.T) {
	s := NewSet()
	s.Source("tank", func() (Reading, error) {
		return func(put Put) { put(water, 1, "a"); put(other, 1) }, nil
	}, water, other)
	w := httptest.NewRecorder()
	s.Handler("grange_test_water").ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if body := w.Body.String(); strings.Contains(body, "water") || !strings.Contains(body, "grange_test_other 1") {
		t.Error(body)
	}
}

func TestListenerIsOwnMachinesWithoutAToken(t *testing.T) {
	for address, ok := range map[string]bool{"": true, "127.0.0.1:9": true, "[::1]:9": true, "localhost:9": true,
		":9": false, "0.0.0.0:9": false, "192.0.2.1:9": false, "node:9": false, "127.0.0.1": false} {
		if err := (Listener{Address: address}).Check(); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
	if err := (Listener{Address: ":9", TokenFile: "/etc/token"}).Check(); err != nil {
		t.Error(err)
	}
}

// TestListener: who has the token scrapes, others do not; a port that is taken is taken over when it is free.
func TestListener(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken.Close()
	go Listener{address, token}.Serve(t.Context(), NewSet().Handler(), slog.New(slog.DiscardHandler))
	get := func(path, shown string) (int, string) {
		r, _ := http.NewRequest("GET", "http://"+address+path, nil)
		if shown != "" {
			r.Header.Set("Authorization", "Bearer "+shown)
		}
		for {
			a, err := http.DefaultClient.Do(r)
			if err != nil && t.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			text, _ := io.ReadAll(a.Body)
			return a.StatusCode, string(text)
		}
	}
	for shown, want := range map[string]int{"": 401, "0123456789abcde": 401, "0123456789abcdef": 200} {
		if got, text := get("/metrics", shown); got != want || want == 200 && !strings.Contains(text, "go_goroutines") {
			t.Errorf("%q: %d %s", shown, got, text)
		}
	}
	if got, _ := get("/", "0123456789abcdef"); got != 404 {
		t.Error(got)
	}
	for i, text := range []string{"", "short"} { // no token is not one that everybody has
		os.WriteFile(token, []byte(text), 0o600)
		if got, _ := get("/metrics", text); got != 503 {
			t.Error(i, got)
		}
	}
	for i := range 2 * connections { // none of them keeps its place
		os.WriteFile(token, fmt.Appendf(nil, "0123456789abcdef%d", i), 0o600)
		http.DefaultClient.CloseIdleConnections()
		if got, _ := get("/metrics", fmt.Sprintf("0123456789abcdef%d", i)); got != 200 {
			t.Error(i, got)
		}
	}
}

// TestScrapesAtOnce: whatever handlers they come by, few scrapes are answered at a time.
func TestScrapesAtOnce(t *testing.T) {
	s, begun, goOn := NewSet(), make(chan struct{}), make(chan struct{})
	gather := func() int {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Code
	}
	s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "grange_test_slow"}, func() float64 {
		begun <- struct{}{}
		<-goOn
		return 1
	}))
	codes := make(chan int)
	for range scrapesAtOnce {
		go func() { codes <- gather() }()
		<-begun
	}
	if got := gather(); got != http.StatusServiceUnavailable {
		t.Error(got)
	}
	close(goOn)
	for range scrapesAtOnce {
		if got := <-codes; got != http.StatusOK {
			t.Error(got)
		}
	}
}

// TestStrangersGo: a connection that was refused is closed, and one address has only some of them.
func TestStrangersGo(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: Listener{TokenFile: token}.guarded(NewSet().Handler())}
	go server.Serve(newBounded(inner))
	defer server.Close()
	closed := func(c net.Conn) bool {
		_, err := io.ReadAll(c) // ends with the connection
		return err == nil || errors.Is(err, syscall.ECONNRESET)
	}
	var all []net.Conn
	for range ofOne + 1 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	if !closed(all[ofOne]) {
		t.Error("one address has any number of connections")
	}
	fmt.Fprint(all[0], "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
	if !closed(all[0]) {
		t.Error("a stranger keeps a connection")
	}
}
