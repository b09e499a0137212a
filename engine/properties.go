// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Property is one setting of a properties file, with the place it came from.
type Property struct {
	Key, Value string
	Line       int // of its first character, from 1

	start, end int // the logical line in the text, without its line terminator
}

// ParseProperties reads Java's properties format (java.util.Properties#load): comments, continued lines, escapes, and
// '=', ':' or a blank between key and value. Java takes each byte for a Latin-1 character; here text that is valid
// UTF-8 is UTF-8, so that a value survives as typed, and only other text is Latin-1. A key that comes twice is
// returned twice; the last one counts. The only wrong input is a malformed \u escape.
func ParseProperties(text []byte) ([]Property, error) {
	p := propertiesParser{text: text, line: 1, latin1: !utf8.Valid(text)}
	var all []Property
	for {
		property, ok, err := p.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return all, nil
		}
		all = append(all, property)
	}
}

type propertiesParser struct {
	text   []byte
	pos    int
	line   int
	latin1 bool
}

// next returns the next logical line that is neither blank nor a comment.
func (p *propertiesParser) next() (Property, bool, error) {
	logical, start, line, ok := p.logicalLine()
	if !ok {
		return Property{}, false, nil
	}
	key, value := splitProperty(logical)
	property := Property{Line: line, start: start, end: p.pos}
	var err error
	if property.Key, err = p.unescape(key); err == nil {
		property.Value, err = p.unescape(value)
	}
	if err != nil {
		return Property{}, false, fmt.Errorf("line %d: %w", line, err)
	}
	return property, true, nil
}

// logicalLine joins continued lines: a line end behind an odd number of backslashes goes, with the blanks that follow
// it. Escapes are still in it; pos is left at its end. As long as it is empty it is a new line, on which comments and
// blank lines count as such, also behind a continuation; an end of the text behind a backslash ends even an empty one.
func (p *propertiesParser) logicalLine() (joined []byte, start, line int, ok bool) {
	backslash := false // an odd number of them stands before pos
	p.skipBlanks()
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		lineEnd := c == '\n' || c == '\r'
		switch {
		case lineEnd && backslash:
			joined, backslash = joined[:len(joined)-1], false
			if p.pos+1 == len(p.text) { // not behind "\r\n": so does Java
				p.advance()
				return joined, start, line, true
			}
			p.advance()
			p.skipBlanks()
		case lineEnd && len(joined) > 0:
			return joined, start, line, true
		case lineEnd:
			p.advance()
			p.skipBlanks()
		case len(joined) == 0 && (c == '#' || c == '!'):
			p.skipLine()
		default:
			if len(joined) == 0 {
				start, line = p.pos, p.line
			}
			joined = append(joined, c)
			backslash = c == '\\' && !backslash
			p.pos++
		}
	}
	if backslash {
		return joined[:len(joined)-1], start, line, true
	}
	return joined, start, line, len(joined) > 0
}

// advance steps over one line end, "\r\n" being one.
func (p *propertiesParser) advance() {
	c := p.text[p.pos]
	p.pos++
	if c == '\r' && p.pos < len(p.text) && p.text[p.pos] == '\n' {
		p.pos++
	}
	p.line++
}

func (p *propertiesParser) skipBlanks() {
	for p.pos < len(p.text) && isPropertyBlank(p.text[p.pos]) {
		p.pos++
	}
}

func (p *propertiesParser) skipLine() {
	for p.pos < len(p.text) && p.text[p.pos] != '\n' && p.text[p.pos] != '\r' {
		p.pos++
	}
}

func isPropertyBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\f' }

// splitProperty cuts a logical line at the first '=', ':' or blank that is not escaped.
func splitProperty(line []byte) (key, value []byte) {
	end := 0
	for end < len(line) && line[end] != '=' && line[end] != ':' && !isPropertyBlank(line[end]) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	rest := bytes.TrimLeft(line[end:], " \t\f")
	if len(rest) > 0 && (rest[0] == '=' || rest[0] == ':') {
		rest = bytes.TrimLeft(rest[1:], " \t\f")
	}
	return line[:end], rest
}

func (p *propertiesParser) unescape(raw []byte) (string, error) {
	var out strings.Builder
	var units []uint16 // pending \u escapes: two may make one character
	flush := func() {
		for _, r := range utf16.Decode(units) {
			out.WriteRune(r)
		}
		units = units[:0]
	}
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '\\' && i+1 < len(raw) && raw[i+1] == 'u' {
			if i+6 > len(raw) {
				return "", fmt.Errorf(`malformed \u escape: %q`, raw[i:])
			}
			n, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
			if err != nil {
				return "", fmt.Errorf(`malformed \u escape: %q`, raw[i:i+6])
			}
			units = append(units, uint16(n))
			i += 5
			continue
		}
		flush()
		if c == '\\' && i+1 < len(raw) {
			i++
			switch c = raw[i]; c {
			case 't':
				c = '\t'
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 'f':
				c = '\f'
			}
		}
		if p.latin1 {
			out.WriteRune(rune(c))
		} else {
			out.WriteByte(c)
		}
	}
	flush()
	return out.String(), nil
}

// appendProperty writes one line that Java and ParseProperties read back as key and value, whatever is in them. Only
// ASCII is written: what is beyond it means different things to readers of Latin-1 and of UTF-8.
func appendProperty(out []byte, key, value string) []byte {
	out = appendEscaped(out, key, true)
	out = append(out, '=')
	return appendEscaped(out, value, false)
}

func appendEscaped(out []byte, s string, key bool) []byte {
	leading := true // blanks at the start of a value would be skipped
	for _, r := range s {
		blank := r == ' '
		switch {
		case blank && (key || leading):
			out = append(out, '\\', ' ')
		case r == '\t':
			out = append(out, '\\', 't')
		case r == '\n':
			out = append(out, '\\', 'n')
		case r == '\r':
			out = append(out, '\\', 'r')
		case r == '\f':
			out = append(out, '\\', 'f')
		case r == '\\':
			out = append(out, '\\', '\\')
		case key && (r == '=' || r == ':' || r == '#' || r == '!'):
			out = append(out, '\\', byte(r))
		case r >= 0x20 && r < 0x7F:
			out = append(out, byte(r))
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04X`, unit)
			}
		}
		leading = leading && blank
	}
	return out
}

// editProperties gives keys new values in a properties text and leaves every other byte as it is: comments, unknown
// keys, order. A key that the text lacks is appended. same says whether a key of the text is the key of a change under
// another spelling; of several such lines all are changed, since the last one counts.
func editProperties(text []byte, changes []Property, same func(inText, changed string) bool) ([]byte, error) {
	present, err := ParseProperties(text)
	if err != nil {
		return nil, err
	}
	var out []byte
	pos := 0
	found := make([]bool, len(changes))
	for _, p := range present {
		for i, change := range changes {
			if !same(p.Key, change.Key) {
				continue
			}
			out = append(out, text[pos:p.start]...)
			out = appendProperty(out, p.Key, change.Value)
			pos = p.end
			found[i] = true
			break
		}
	}
	out = append(out, text[pos:]...)
	for i, change := range changes {
		if found[i] {
			continue
		}
		if len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
		out = appendProperty(out, change.Key, change.Value)
		out = append(out, '\n')
	}
	return out, nil
}
