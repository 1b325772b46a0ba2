package capacity

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/cli/app"
)

// answers are what a server says of a farm of two cells, one of which has no host yet.
var answers = map[string]string{
	"/v1/cells":    `{"items": [{"name": "east"}, {"name": "empty"}]}`,
	"/v1/projects": `{"items": [{"name": "atlas", "pledge": 100}, {"name": "cms"}]}`,
	"/v1/usage/records": `{"items": [{"id": "1", "kind": "job", "cell": "east", "project": "atlas", "cores": 8, "score": 10,
		"score_unit": "HS23", "start": "2026-10-31T20:00:00Z", "end": "2026-10-31T22:00:00Z"}]}`,
}

func serveFarm(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch text, ok := answers[r.URL.Path]; {
		case ok:
			fmt.Fprint(w, text)
		case r.URL.Query().Get("series") == "cells.east.cpus.*":
			fmt.Fprint(w, `{"step": 7200, "from": "2026-10-31T18:00:00Z", "series": [
				{"name": "cells.east.cpus.total", "values": [null, 64, 64]},
				{"name": "cells.east.cpus.reserved", "values": [null, 4, 4]},
				{"name": "cells.east.cpus.free", "values": [null, 50, 50]}]}`)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"type": "grange:no-series", "status": 404, "detail": "no series"}`)
		}
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return socket
}

const told = `2026-10-01 00:00 to 2026-11-01 00:00 UTC, hours of a CPU
CELL  SEEN   INSTALLED  RESERVED  CLOSED  JOBS  VMS  NO VM  HELD  UNUSED
east  0.5 %  256        16        0       16    0    0      24    200
east: 160 HS23 hours in 100.0 % of what was delivered

PROJECT  PLEDGED CPUS  PLEDGED  DELIVERED  OF THE PLEDGE
atlas    100           74400    16         4.0 %
`

// TestPresent: the time of the month alone counts, and a cell without hosts is left out.
func TestPresent(t *testing.T) {
	socket := serveFarm(t)
	for _, month := range []string{"2026-10", "2026-11"} {
		var out bytes.Buffer
		c := commands{&app.App{Out: &out, Server: "unix://" + socket}}
		p, err := c.present(t.Context(), month, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
		if month == "2026-11" { // it begins now
			if err == nil {
				t.Errorf("%+v", p)
			}
			continue
		}
		if err == nil {
			err = p.print(c.App)
		}
		if err != nil || out.String() != told || len(p.Cells) != 1 || p.Cells[0].Delivered.Jobs != 16 {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}
