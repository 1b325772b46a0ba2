package metrics

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/sleep"
)

// Listener is where scrapers reach a program that has no other port for them.
type Listener struct {
	Address   string // HOST:PORT; "": nowhere
	TokenFile string // who scrapes has to show what is in it; "": nobody has to, and Address is the machine's own
}

// Check returns an error unless the listener is off, on the machine's own addresses, or asks for a token.
func (l Listener) Check() error {
	if l.Address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(l.Address)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", l.Address)
	}
	if ip := net.ParseIP(host); l.TokenFile == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%s is reached from other machines: set a token file, or listen on 127.0.0.1", l.Address)
	}
	return nil
}

const (
	listenAgain = 10 * time.Second
	answerTime  = 30 * time.Second
	maxToken    = 4 << 10
)

// Serve answers scrapes until ctx ends. A port that is taken is tried again: a program works without its metrics.
func (l Listener) Serve(ctx context.Context, h http.Handler, log *slog.Logger) {
	if l.Address == "" {
		return
	}
	last := ""
	for ctx.Err() == nil {
		err := l.serveOnce(ctx, h, log)
		if now := fmt.Sprint(err); ctx.Err() == nil && now != last {
			log.Error("metrics are not served now", "listen", l.Address, "error", err)
			last = now
		}
		_ = sleep.For(ctx, listenAgain)
	}
}

func (l Listener) serveOnce(ctx context.Context, h http.Handler, log *slog.Logger) error {
	listener, err := net.Listen("tcp", l.Address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", l.guarded(h))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w, "see /metrics", http.StatusNotFound) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: answerTime, IdleTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	log.Info("metrics are served", "listen", listener.Addr().String())
	return server.Serve(newBounded(listener))
}

// guarded asks for the token, which is read each time: a new one counts at once.
func (l Listener) guarded(h http.Handler) http.Handler {
	if l.TokenFile == "" {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := readToken(l.TokenFile)
		if err != nil {
			refuse(w, "the token file cannot be read: see token_file in the configuration",
				http.StatusServiceUnavailable)
			return
		}
		scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") ||
			subtle.ConstantTimeCompare([]byte(strings.TrimSpace(shown)), []byte(token)) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="grange metrics"`)
			refuse(w, "show the token of the token file as Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// refuse answers, and takes the connection's place away: who may not scrape does not keep those out who may.
func refuse(w http.ResponseWriter, text string, status int) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, status)
}

// leastToken is how long a token has to be: an empty file is none.
const leastToken = 16

func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if token := strings.TrimSpace(string(text)); err != nil || len(token) >= leastToken {
		return token, err
	}
	return "", errors.New("a token has at least 16 characters")
}

// How many scrapers are connected at a time. Of one address more are refused at once, whoever they are: one machine
// does not keep the others out. All beyond connections wait in the kernel's queue.
const (
	connections = 64
	ofOne       = 16
)

// bounded accepts so many connections at a time.
type bounded struct {
	net.Listener
	slots chan struct{}

	mu   sync.Mutex
	from map[string]int // connections of an address
}

func newBounded(l net.Listener) *bounded {
	return &bounded{Listener: l, slots: make(chan struct{}, connections), from: map[string]int{}}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		b.slots <- struct{}{}
		c, err := b.Listener.Accept()
		if err != nil {
			<-b.slots
			return nil, err
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		s := &slot{Conn: c, free: sync.OnceFunc(func() { b.leave(host) })}
		if b.enter(host) {
			return s, nil
		}
		s.Close()
	}
}

// enter counts a connection, and reports whether its address may have it.
func (b *bounded) enter(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from[host]++
	return b.from[host] <= ofOne
}

func (b *bounded) leave(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from[host]--; b.from[host] == 0 {
		delete(b.from, host)
	}
	<-b.slots
}

// slot is a connection that gives its place back once.
type slot struct {
	net.Conn
	free func()
}

func (s *slot) Close() error {
	defer s.free()
	return s.Conn.Close()
}
