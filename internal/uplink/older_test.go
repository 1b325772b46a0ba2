package uplink_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// older is a server of an earlier release: it says so in each answer, and refuses agents that say more than it takes.
type older struct {
	next     http.Handler
	says     int
	most     int
	refusals atomic.Int32
}

func (o *older) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	said, atoi := strconv.Atoi(r.Header.Get(fleet.CapabilityHeader))
	var report fleet.Report
	if r.URL.Path == fleet.RouteReport {
		err = json.Unmarshal(body, &report)
	}
	if report.Facts != nil {
		said = max(said, report.Facts.Capability)
	}
	if err != nil || atoi != nil || said > o.most && r.URL.Path != fleet.RouteEnrol {
		o.refusals.Add(1)
		w.Header().Set(fleet.CapabilityHeader, strconv.Itoa(o.says))
		w.WriteHeader(http.StatusConflict)
		json.NewEncoder(w).Encode(api.Problem{Title: string(farm.Conflict), Type: "grange:" + string(farm.CodeAgentNew),
			Detail: "too new"})
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	o.next.ServeHTTP(&saying{w, o.says}, r)
}

// saying answers with another capability.
type saying struct {
	http.ResponseWriter
	capability int
}

func (s *saying) WriteHeader(status int) {
	s.Header().Set(fleet.CapabilityHeader, strconv.Itoa(s.capability))
	s.ResponseWriter.WriteHeader(status)
}

func (s *saying) Write(text []byte) (int, error) {
	s.Header().Set(fleet.CapabilityHeader, strconv.Itoa(s.capability))
	return s.ResponseWriter.Write(text)
}

func (s *saying) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// The way back of a site: its server is of the release before the upgrade, its hosts are of this one.
func TestAnOlderServer(t *testing.T) {
	o := &older{says: fleet.OldestCapability, most: fleet.OldestCapability}
	s := newSite(t)
	h := s.join("wn-1")
	capability := func() int { return s.row(h.id.Host).Facts.Capability }
	s.eventually("this release's", func() bool { return capability() == fleet.Capability })
	s.stop()
	s.front = func(door http.Handler) http.Handler { o.next = door; return o }
	s.start()
	s.eventually("the older server's", func() bool { return capability() == o.says })
	if n := o.refusals.Load(); n == 0 {
		t.Error("the older server refused nothing: this test shows nothing")
	}
	s.stop()
	s.front = nil
	s.start()
	s.eventually("this release's again", func() bool { return capability() == fleet.Capability })
}

// With a server that is too old for this release an agent says what it is, and is refused.
func TestAServerThatIsTooOld(t *testing.T) {
	o := &older{says: fleet.OldestCapability - 1, most: fleet.OldestCapability}
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return s.row(h.id.Host).Facts.Instance != "" })
	h.stop()
	s.stop()
	s.front = func(door http.Handler) http.Handler { o.next = door; return o }
	s.start()
	heard := s.second(h, h.Host)
	s.eventually("refused", func() bool { return heard.said(farm.CodeAgentNew) })
}
