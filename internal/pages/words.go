package pages

import (
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// sheets are the templates of pages, by name: each has the layout and the parts that all share.
func sheets() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(words).ParseFS(files, "templates/layout.html"))
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err) // of a pattern that is written above
	}
	all := map[string]*template.Template{}
	for _, name := range names {
		if path.Base(name) == "layout.html" {
			continue
		}
		t := template.Must(template.Must(shared.Clone()).ParseFS(files, name))
		all[strings.TrimSuffix(path.Base(name), ".html")] = t
	}
	return all
}

// words are what templates may call.
var words = template.FuncMap{
	"asset": asset, "size": size, "count": farm.Count, "hint": hint, "join": strings.Join, "span": span,
	"nav":     func() []navEntry { return navigation },
	"periods": func() any { return periods },
	"stamp":   stamp, "minute": minute,
}

// size is bytes for people.
func size(b farm.Bytes) string { return b.Rounded().String() }

// stamp is a time as machines read it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// minute is a time for people.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// span is a duration for people: its two largest units.
func span(d time.Duration) string {
	d = max(d, 0)
	units := []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.of {
			continue
		}
		n := d / u.of
		text := fmt.Sprintf("%d %s", n, u.name)
		if rest := d % u.of; i+1 < len(units) && n < 10 && u.of > time.Minute && rest >= units[i+1].of {
			text += fmt.Sprintf(" %d %s", rest/units[i+1].of, units[i+1].name)
		}
		return text
	}
	return "0 s"
}

// hint is the text of a hint: what is in backquotes is what somebody would type.
func hint(text string) template.HTML {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		if part = template.HTMLEscapeString(part); i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		out.WriteString(part)
	}
	return template.HTML(out.String())
}
