package journal

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// fields are the attributes that can be looked for, with the names of their fields.
var fields = map[string]string{"job": "JOB", "vm": "VM", "user": "USER"}

// handler is a slog.Handler.
type handler struct {
	*shared
	text  slog.Handler // writes attributes to shared.buffer
	known []slog.Attr  // of the fields, from With
	group bool         // what is added is in a group
}

type shared struct {
	writer
	name string // of the program

	rendering sync.Mutex
	buffer    bytes.Buffer
}

// NewHandler returns a handler that logs as the named program to the journald whose socket is at path.
func NewHandler(path, name string) slog.Handler {
	s := &shared{writer: writer{path: path}, name: name}
	return handler{shared: s, text: slog.NewTextHandler(&s.buffer, &slog.HandlerOptions{ReplaceAttr: onlyAttrs})}
}

// onlyAttrs leaves out what the entry has fields for.
func onlyAttrs(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

func (h handler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.text = h.text.WithAttrs(attrs)
	if !h.group {
		h.known = append(slices.Clip(h.known), attrs...)
	}
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	h.text, h.group = h.text.WithGroup(name), true
	return h
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	attrs, err := h.render(ctx, r)
	if err != nil {
		return err
	}
	var entry bytes.Buffer
	appendField(&entry, "MESSAGE", truncated(strings.TrimSpace(r.Message+" "+attrs)))
	appendField(&entry, "PRIORITY", strconv.Itoa(priority(r.Level)))
	appendField(&entry, "SYSLOG_IDENTIFIER", h.name)
	add := func(a slog.Attr) bool {
		if value := a.Value.Resolve().String(); fields[a.Key] != "" && value != "" {
			appendField(&entry, fields[a.Key], truncated(value))
		}
		return true
	}
	for _, a := range h.known {
		add(a)
	}
	if !h.group {
		r.Attrs(add)
	}
	return h.send(entry.Bytes())
}

// render returns the attributes as text.
func (h handler) render(ctx context.Context, r slog.Record) (string, error) {
	h.rendering.Lock()
	defer h.rendering.Unlock()
	h.buffer.Reset()
	err := h.text.Handle(ctx, r)
	return h.buffer.String(), err
}

func truncated(text string) string {
	if len(text) > maxEntry {
		return strings.ToValidUTF8(text[:maxEntry], "") + "…"
	}
	return text
}

// priority returns syslog's number of a level.
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}
