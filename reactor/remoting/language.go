// SPDX-License-Identifier: Apache-2.0

package remoting

// Language codes of LanguageCode. LanguageUnknown stands for a name that is not in the table: Java decodes such a name
// to null and serves the request.
const (
	LanguageJava    byte = 0
	LanguageCPP     byte = 1
	LanguageDotNet  byte = 2
	LanguagePython  byte = 3
	LanguageDelphi  byte = 4
	LanguageErlang  byte = 5
	LanguageRuby    byte = 6
	LanguageOther   byte = 7
	LanguageHTTP    byte = 8
	LanguageGo      byte = 9
	LanguagePHP     byte = 10
	LanguageOMS     byte = 11
	LanguageRust    byte = 12
	LanguageNodeJS  byte = 13
	LanguageUnknown byte = 255
)

var languageNames = [...]string{
	LanguageJava:   "JAVA",
	LanguageCPP:    "CPP",
	LanguageDotNet: "DOTNET",
	LanguagePython: "PYTHON",
	LanguageDelphi: "DELPHI",
	LanguageErlang: "ERLANG",
	LanguageRuby:   "RUBY",
	LanguageOther:  "OTHER",
	LanguageHTTP:   "HTTP",
	LanguageGo:     "GO",
	LanguagePHP:    "PHP",
	LanguageOMS:    "OMS",
	LanguageRust:   "RUST",
	LanguageNodeJS: "NODE_JS",
}

// LanguageName is the name of a language code; a code that is not in the table is called OTHER, which every peer can
// decode.
func LanguageName(code byte) string {
	if int(code) < len(languageNames) {
		return languageNames[code]
	}
	return languageNames[LanguageOther]
}

func languageByName(name []byte) byte {
	if string(name) == "JAVA" {
		return LanguageJava
	}
	for code, n := range languageNames {
		if string(name) == n {
			return byte(code)
		}
	}
	return LanguageUnknown
}
